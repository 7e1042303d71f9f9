// RUN: tpusim opt -p 'convert-top-to-tpu{chip=bm1684x mode=F16}' %s | filecheck %s
//
// An attention, from the products with the weights of queries, keys and values to the product after the heads,
// becomes an Attention for each head.
// WEIGHT q_weight = 1 2 3
// WEIGHT k_weight = 1 2 3
// WEIGHT v_weight = 1 2 3
// WEIGHT o_weight = 1 2 3

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x8xf32>) -> tensor<1x4x8xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x8xf32>) -> tensor<1x4x8xf32> loc("x")
    %q_weight = "top.Weight"() : () -> tensor<8x8xf32> loc("q_weight")
    %none = "top.None"() : () -> none
    %q = "top.MatMul"(%x, %q_weight, %none) : (tensor<1x4x8xf32>, tensor<8x8xf32>, none) -> tensor<1x4x8xf32> loc("q")
    %k_weight = "top.Weight"() : () -> tensor<8x8xf32> loc("k_weight")
    %k = "top.MatMul"(%x, %k_weight, %none) : (tensor<1x4x8xf32>, tensor<8x8xf32>, none) -> tensor<1x4x8xf32> loc("k")
    %v_weight = "top.Weight"() : () -> tensor<8x8xf32> loc("v_weight")
    %v = "top.MatMul"(%x, %v_weight, %none) : (tensor<1x4x8xf32>, tensor<8x8xf32>, none) -> tensor<1x4x8xf32> loc("v")
    %q4 = "top.Reshape"(%q) {shape = [1, 4, 2, 4]} : (tensor<1x4x8xf32>) -> tensor<1x4x2x4xf32> loc("q4")
    %k4 = "top.Reshape"(%k) {shape = [1, 4, 2, 4]} : (tensor<1x4x8xf32>) -> tensor<1x4x2x4xf32> loc("k4")
    %v4 = "top.Reshape"(%v) {shape = [1, 4, 2, 4]} : (tensor<1x4x8xf32>) -> tensor<1x4x2x4xf32> loc("v4")
    %qh = "top.Permute"(%q4) {order = [0, 2, 1, 3]} : (tensor<1x4x2x4xf32>) -> tensor<1x2x4x4xf32> loc("qh")
    %kh = "top.Permute"(%k4) {order = [0, 2, 3, 1]} : (tensor<1x4x2x4xf32>) -> tensor<1x2x4x4xf32> loc("kh")
    %vh = "top.Permute"(%v4) {order = [0, 2, 1, 3]} : (tensor<1x4x2x4xf32>) -> tensor<1x2x4x4xf32> loc("vh")
    %scores = "top.MatMul"(%qh, %kh, %none) : (tensor<1x2x4x4xf32>, tensor<1x2x4x4xf32>, none) -> tensor<1x2x4x4xf32> loc("scores")
    %scaled = "top.MulConst"(%scores) {const_val = 5.000000e-01 : f64} : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32> loc("scaled")
    %p = "top.Softmax"(%scaled) {axis = 3} : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32> loc("p")
    %mixed = "top.MatMul"(%p, %vh, %none) : (tensor<1x2x4x4xf32>, tensor<1x2x4x4xf32>, none) -> tensor<1x2x4x4xf32> loc("mixed")
    %rows = "top.Permute"(%mixed) {order = [0, 2, 1, 3]} : (tensor<1x2x4x4xf32>) -> tensor<1x4x2x4xf32> loc("rows")
    %joined = "top.Reshape"(%rows) {shape = [1, 4, 8]} : (tensor<1x4x2x4xf32>) -> tensor<1x4x8xf32> loc("joined")
    %o_weight = "top.Weight"() : () -> tensor<8x8xf32> loc("o_weight")
    %y = "top.MatMul"(%joined, %o_weight, %none) : (tensor<1x4x8xf32>, tensor<8x8xf32>, none) -> tensor<1x4x8xf32> loc("y")
    func.return %y : tensor<1x4x8xf32>
  }
}

// CHECK:      %1 = "top.Input"(%0) : (tensor<1x4x8xf32>) -> tensor<1x4x8xf32> loc("x")
// CHECK-NEXT: %2 = "tpu.Cast"(%1) {{.*}} -> tensor<1x4x8xf16> loc("xq_f16")
// CHECK-NEXT: %3 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %4 = "top.Weight"() : () -> tensor<8x4xf16> loc("q_weight_weight_head_0_f16")
// CHECK-NEXT: %5 = "top.Weight"() : () -> tensor<8x4xf16> loc("k_weight_weight_head_0_f16")
// CHECK-NEXT: %6 = "top.Weight"() : () -> tensor<8x4xf16> loc("v_weight_weight_head_0_f16")
// CHECK-NEXT: %7 = "top.Weight"() : () -> tensor<1x4x8xf16> loc("o_weight_weight_head_0_f16")
// CHECK-NEXT: %8 = "tpu.Attention"(%2, %3, %3, %4, %3, %5, %3, %6, %3, %7, %3, %3, %3) {dim = 4 : i64, has_bias = 0 : i64, head = 1 : i64, scale = 5.000000e-01 : f64}{{.*}} -> tensor<1x4x8xf16> loc("y_head_0")
// CHECK-NEXT: %9 = "top.Weight"() : () -> tensor<8x4xf16> loc("q_weight_weight_head_1_f16")
// CHECK-NEXT: %10 = "top.Weight"() : () -> tensor<8x4xf16> loc("k_weight_weight_head_1_f16")
// CHECK-NEXT: %11 = "top.Weight"() : () -> tensor<8x4xf16> loc("v_weight_weight_head_1_f16")
// CHECK-NEXT: %12 = "top.Weight"() : () -> tensor<1x4x8xf16> loc("o_weight_weight_head_1_f16")
// CHECK-NEXT: %13 = "tpu.Attention"(%2, %3, %3, %9, %3, %10, %3, %11, %3, %12, %3, %3, %3) {dim = 4 : i64, has_bias = 0 : i64, head = 1 : i64, scale = 5.000000e-01 : f64}{{.*}} -> tensor<1x4x8xf16> loc("y_head_1")
// CHECK-NEXT: %14 = "tpu.Add"(%8, %13) {{.*}} -> tensor<1x4x8xf16> loc("y")
// CHECK-NEXT: %15 = "tpu.Cast"(%14) {{.*}} -> tensor<1x4x8xf32> loc("y_f32")
// CHECK-NEXT: func.return %15 : tensor<1x4x8xf32>
