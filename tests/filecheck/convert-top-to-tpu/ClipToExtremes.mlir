// RUN: tpusim opt -p 'convert-top-to-tpu{chip=bm1684 mode=F32}' %s | filecheck %s
//
// A Clip becomes a MaxConst and a MinConst.

func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
  %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %y = "top.Clip"(%x) {min = -1.000000e+00 : f64, max = 1.000000e+00 : f64} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
  func.return %y : tensor<2x4x6xf32>
}

// CHECK:      %1 = "top.Input"(%0) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %2 = "tpu.MaxConst"(%1) {const_val = -1.000000e+00 : f64{{.*}} -> tensor<2x4x6xf32> loc("y_max")
// CHECK-NEXT: %3 = "tpu.MinConst"(%2) {const_val = 1.000000e+00 : f64{{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %3 : tensor<2x4x6xf32>
