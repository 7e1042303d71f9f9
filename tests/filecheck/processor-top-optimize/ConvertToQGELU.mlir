// RUN: tpusim opt -p 'processor-assign{chip=bm1684x mode=F16},processor-top-optimize' %s | filecheck %s
//
// x times the sigmoid of 1.702 x becomes the GELU of that form.

module {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %a = "top.MulConst"(%x) {const_val = 1.7020000219345093 : f64} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("a")
    %s = "top.Sigmoid"(%a) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("s")
    %y = "top.Mul"(%s, %x) : (tensor<2x4x6xf32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.GELU"(%x) {approx_mode = "sigm"}{{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>
