// RUN: tpusim opt -p 'processor-assign{chip=bm1684x mode=F16},processor-top-optimize' %s | filecheck %s
//
// A quotient by a root becomes a product with the reciprocal root, which has the root's range.

module {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %a = "top.Abs"(%x) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("a")
    %r = "top.Sqrt"(%a) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("r")
    %y = "top.Div"(%x, %r) {do_relu = true, relu_limit = -1.000000e+00 : f64} : (tensor<2x4x6xf32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %y = "top.Rsqrt"(%a) {{.*}} loc("r_inv")
// CHECK-NEXT: %y_1 = "top.Mul"(%x, %y) {do_relu = true, relu_limit = -1.000000e+00 : f64} {{.*}} loc("y")
